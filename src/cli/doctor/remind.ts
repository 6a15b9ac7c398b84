import { setTimeout as sleep } from 'node:timers/promises'
import type { Logger } from '../../runtime/logger.ts'
import type { Config } from '../../service/config.ts'
import { checks } from './checks.ts'
import { lookAgain, type HandlerFacts } from './look.ts'

/** Every start reports these checks anyway. */
const reportedAtStart = new Set(['Settings', 'Migrations'])
/** These checks wait: the first of several processes always starts before the others. */
const later = new Set(['Roles', 'Processes'])
const laterMs = 10_000

/** Logs the doctor's findings at start, because few people run the doctor before a failure. Never rejects. */
export async function remind(
  config: Config,
  databaseUrl: string,
  handlers: HandlerFacts,
  log: Pick<Logger, 'warn'>,
  isStopped: () => boolean
): Promise<void> {
  const look = async (isNow: (name: string) => boolean): Promise<void> => {
    try {
      const looked = await lookAgain(config, databaseUrl, handlers)
      for (const check of checks.filter(({ name }) => !reportedAtStart.has(name) && isNow(name))) {
        const finding = check.look(looked, config)
        if (isStopped() || finding === undefined || finding.level === 'ok') continue
        const { level, found, remedy } = finding
        log.warn({ check: check.name, found, remedy }, `doctor.${level}`)
      }
    } catch (err) {
      if (!isStopped()) log.warn({ err }, 'doctor.failed')
    }
  }
  await look(name => !later.has(name))
  await sleep(laterMs, undefined, { ref: false })
  if (!isStopped()) await look(name => later.has(name))
}
