// The handlers that a service with these settings loads, for it and for the commands that read handlers.
import { demoEnv } from '../demo/receiver.ts'
import { builtInHandlers } from '../handler/files.ts'
import { loadHandlers, type LoadOptions, type Registry } from '../handler/load.ts'
import type { Config } from '../service/config.ts'
import { missingForTransports, transportNames } from '../transport/registry.ts'
import { defined } from '../domain/optional-members.ts'

/** The npm event of a service that `ackbox dev` runs. */
export const devEvent = 'ackbox dev'

/** A placeholder for the demo receiver, whose port is known only in the running service. */
export const demoUrl = 'http://demo-receiver'

/** Throws HandlersError with the errors of all handlers. With DEMO=on, `receiverUrl` is the address of the demo receiver. */
export async function readHandlers(
  { handlersDir, dtmTargets, demo }: Pick<Config, 'handlersDir' | 'dtmTargets' | 'demo'>,
  receiverUrl = demoUrl,
  onUndefined?: LoadOptions['onUndefined']
): Promise<Registry> {
  return await loadHandlers({
    ...defined({ dir: handlersDir, dtmTargets, onUndefined }),
    // In development such a mistake is an error at once.
    strictBody: process.env['npm_lifecycle_event'] === devEvent,
    builtIn: builtInHandlers,
    env: demo ? { ...demoEnv(receiverUrl), ...process.env } : process.env,
    transports: transportNames
  })
}

/** The brokers and packages that a start with these handlers would miss: a line each, with the remedy. */
export const missingFor = async (
  { downstreams }: Registry,
  { brokers }: Pick<Config, 'brokers'>
): Promise<string[]> =>
  await missingForTransports(
    [...downstreams.values()].map(one => one.transport),
    brokers
  )
