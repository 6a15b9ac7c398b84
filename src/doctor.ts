// npm run doctor: looks at everything this setup hangs on, and says for each OK or the line that fixes it.
import { parseArgs } from 'node:util'
import { environment, readConfig, SettingError, type Config } from './config.ts'
import { runPostmaster, stopPostmaster, urlOf } from './db/postmaster.ts'
import { checks, type Finding } from './doctor/checks.ts'
import { lookAround } from './doctor/look.ts'

const { values } = parseArgs({ options: { help: { type: 'boolean', short: 'h' } } })
if (values.help) {
  console.log(
    'npm run doctor    checks the settings of this shell, PostgreSQL, Redis, the handlers, and the clock'
  )
  console.log('It changes nothing. Exit: 0 nothing to fix · 1 something to fix, and said')
  process.exit(0)
}

try {
  const config = readConfig(environment())
  const database = await reachDatabase(config)
  let looked
  try {
    looked = await lookAround(config, database.url)
  } finally {
    await database.leave()
  }
  const findings = checks.flatMap(({ name, look }) => {
    const finding = look(looked, config)
    if (finding !== undefined) print(name, finding)
    return finding ?? []
  })
  const toFix = findings.filter(({ level }) => level === 'fix').length
  const warned = findings.filter(({ level }) => level === 'warn').length
  console.log(`\n${findings.length} checks, ${toFix} to fix, ${warned} to consider`)
  process.exitCode = toFix === 0 ? 0 : 1
} catch (err) {
  if (!(err instanceof SettingError)) throw err
  for (const found of err.message.split('\n'))
    print('Settings', { level: 'fix', found, remedy: 'see docs/config.md' })
  process.exitCode = 1
}

/** Without DATABASE_URL: the embedded one. One that runs already belongs to the service and goes on. */
async function reachDatabase({ databaseUrl, dataDir }: Config) {
  if (databaseUrl !== undefined) return { url: databaseUrl, leave: async () => {} }
  const postmaster = await runPostmaster({ dataDir })
  const leave = async () => {
    if (!postmaster.adopted) await stopPostmaster({ pid: postmaster.pid, dataDir })
  }
  return { url: urlOf(postmaster), leave }
}

function print(name: string, { level, found, remedy }: Finding): void {
  const word = { ok: 'OK  ', warn: 'WARN', fix: 'FIX ' }[level]
  console.log(`${word}  ${name.padEnd(30)}  ${found}`)
  if (remedy !== undefined) console.log(`${' '.repeat(38)}-> ${remedy}`)
}
