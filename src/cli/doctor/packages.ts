// The packages of these settings. Those of the handlers' transports: transport/registry.ts.
import { openChannels } from '../../alarm/open-channels.ts'
import { SetupError } from '../../runtime/errors.ts'
import type { Config } from '../../service/config.ts'
import { needTracing } from '../../service/tracing.ts'
import { loadReaders } from '../../transport/receipt-readers.ts'

/** The packages of alarm channels, RECEIPTS_FROM and tracing that a start with these roles would miss: a line each, with the remedy. */
export async function missingPackages({
  roles,
  alarmChannels,
  receiptsFrom,
  secret = '',
  publicUrl,
  egressAllow = []
}: Pick<
  Config,
  'roles' | 'alarmChannels' | 'receiptsFrom' | 'secret' | 'publicUrl' | 'egressAllow'
>): Promise<string[]> {
  const lines = await Promise.all([
    missingFor(() =>
      openChannels(roles.has('dispatcher') ? alarmChannels : [], { secret, publicUrl, egressAllow })
    ),
    missingFor(() => loadReaders(roles.has('api') ? receiptsFrom : [])),
    missingFor(needTracing)
  ])
  return lines.flat()
}

async function missingFor(load: () => Promise<unknown>): Promise<string[]> {
  try {
    await load()
    return []
  } catch (err) {
    if (err instanceof SetupError) return [err.message]
    throw err
  }
}
