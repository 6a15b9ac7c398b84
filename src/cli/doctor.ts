// ackbox doctor: checks everything this setup depends on. Each check is OK, or names the fix.
import { environment, readConfig, SettingError, type Config } from '../service/config.ts'
import { checkClient, DatabaseError } from '../db/pool.ts'
import { commandLine } from '../runtime/package.ts'
import { readArguments } from './arguments.ts'
import { borrowUntilStop, hasEmbedded } from './database.ts'
import { checks } from './doctor/checks.ts'
import type { Finding } from './doctor/finding.ts'
import { lookAround } from './doctor/look.ts'

export const help = `${commandLine('doctor')}    checks the settings of this shell, PostgreSQL, Redis, the handlers and the clock
It changes nothing. Exit: 0 nothing to fix · 1 something to fix`

export const runsHandlers = true

export async function run(args: string[]): Promise<void> {
  readArguments({ args })
  try {
    const config = readConfig(environment())
    checkClient()
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
    if (err instanceof DatabaseError) print('PostgreSQL', { level: 'fix', found: err.message })
    else if (err instanceof SettingError) {
      for (const found of err.message.split('\n'))
        print('Settings', { level: 'fix', found, remedy: 'see docs/config.md' })
    } else throw err
    process.exitCode = 1
  }
}

/** Without DATABASE_URL: the embedded database. It keeps running if somebody else uses it. */
async function reachDatabase(config: Config) {
  if (config.databaseUrl === undefined && hasEmbedded(config)) return await borrowUntilStop(config.dataDir)
  return { url: config.databaseUrl, leave: async () => {} }
}

function print(name: string, { level, found, remedy }: Finding): void {
  const word = { ok: 'OK  ', warn: 'WARN', fix: 'FIX ' }[level]
  console.log(`${word}  ${name.padEnd(30)}  ${found}`)
  if (remedy !== undefined) console.log(`${' '.repeat(38)}-> ${remedy}`)
}
