import type { Config } from '../config.ts'
import { checks } from './checks.ts'
import { lookAtServers, type Looked } from './look.ts'

interface Log {
  warn(fields: object, message: string): void
}

/** What is said otherwise at a start. */
// And of a set of processes that start one by one the first would always miss the others.
const said = new Set(['Settings', 'Migrations', 'Roles'])

/** Says at a start what the doctor would, where it is not well: few ask a doctor before something hurts. Never rejects. */
export async function remind(
  config: Config,
  databaseUrl: string,
  handlers: Looked['handlers'],
  log: Log
): Promise<void> {
  try {
    const looked = { ...(await lookAtServers(config, databaseUrl)), handlers }
    for (const { name, look } of checks.filter(check => !said.has(check.name))) {
      const finding = look(looked, config)
      if (finding === undefined || finding.level === 'ok') continue
      const { level, found, remedy } = finding
      log.warn({ check: name, found, remedy }, `doctor.${level}`)
    }
  } catch (err) {
    log.warn({ err }, 'doctor.failed')
  }
}
