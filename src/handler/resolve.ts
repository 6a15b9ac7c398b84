import * as modules from 'node:module'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { initialize, load, resolve } from './module-hooks.ts'
import { stripsTypes } from './typescript.ts'

/** Exists since Node 22.15. Our types are those of the oldest Node that we support. */
const { registerHooks } = modules as {
  registerHooks?: (hooks: { resolve: typeof resolve; load: typeof load }) => void
}

let registered = false

/**
 * Makes `ackbox/handler` and zod resolve in a folder where they do not resolve by themselves. They do in our own project
 * (package self-reference) and in a project that installed us (its node_modules). Also loads TypeScript if this Node cannot.
 */
export function prepareForHandlers({ folder, typescript }: { folder: string; typescript: boolean }): void {
  const handler = import.meta
    .resolve('./define.js')
    .replace(/\.js$/, import.meta.url.endsWith('.ts') ? '.ts' : '.js')
  const reads = stripsTypes || !typescript
  if (registered || (reads && findsUs(folder, handler))) return
  registered = true
  // The hooks run in this thread if Node can do that: a separate thread costs 20 MiB, and a third of a second at every start.
  if (registerHooks) {
    initialize({ handler })
    registerHooks({ resolve, load })
  } else modules.register('./module-hooks.js', import.meta.url, { data: { handler } })
}

/** Whether `ackbox/handler` resolves to the module that this process has loaded: a second copy would have its own `env`. */
function findsUs(folder: string, handler: string): boolean {
  const { resolve } = modules.createRequire(join(folder, 'any.js'))
  try {
    return pathToFileURL(resolve('ackbox/handler')).href === handler && resolve('zod') !== ''
  } catch {
    return false
  }
}
