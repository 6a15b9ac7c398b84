import { defineHandler, env, url, z } from 'ackbox/handler'

/** The two receivers of a database take turns. Each database grants the points of a task twice: at once, and late with a receipt. */
const downstream = (base: string, kind: 'prompt' | 'late') => ({
  transport: 'http' as const,
  request: ({ raw, attempt }: { raw: string; attempt: number }) => ({
    url: url`${attempt % 2 === 1 ? env[`CHAOS_${base}_1`] : env[`CHAOS_${base}_2`]}/${kind}`,
    body: raw
  }),
  secrets: [env['CHAOS_SIGNING_SECRET'] ?? ''],
  needCallback: kind === 'late',
  receiptTimeout: '2s' as const,
  retry: { times: 100, backoff: ['200ms' as const, '500ms' as const, '1s' as const] },
  limit: { concurrency: 20, timeout: '3s' as const }
})

export default defineHandler({
  messageCode: 'chaos.points',
  body: z.object({ points: z.int() }),
  downstreams: {
    'postgres-prompt': downstream('POSTGRES', 'prompt'),
    'postgres-late': downstream('POSTGRES', 'late'),
    'mariadb-prompt': downstream('MARIADB', 'prompt'),
    'mariadb-late': downstream('MARIADB', 'late')
  }
})
