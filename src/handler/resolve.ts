import * as modules from 'node:module'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { initialize, load, resolve } from './hooks.ts'
import { stripsTypes } from './typescript.ts'

/** Since Node 22.15; our types are those of the oldest Node that we run on. */
const { registerHooks } = modules as {
  registerHooks?: (hooks: { resolve: typeof resolve; load: typeof load }) => void
}

let registered = false

/**
 * Makes `ackbox/handler` and zod resolve in a folder where they do not by themselves: in our own project package
 * self-reference does, in one that installed us its node_modules. And makes TypeScript load, where there is some and this
 * Node cannot.
 */
export function prepareForHandlers({ folder, typescript }: { folder: string; typescript: boolean }): void {
  const handler = import.meta
    .resolve('./define.js')
    .replace(/\.js$/, import.meta.url.endsWith('.ts') ? '.ts' : '.js')
  const reads = stripsTypes || !typescript
  if (registered || (reads && findsUs(folder, handler))) return
  registered = true
  // In this thread where that can be: one of its own costs 20 MiB, and a third of a second at every start.
  if (registerHooks) {
    initialize({ handler })
    registerHooks({ resolve, load })
  } else modules.register('./hooks.js', import.meta.url, { data: { handler } })
}

/** The very module that this process has read: a second copy would read another `env`. */
function findsUs(folder: string, handler: string): boolean {
  const { resolve } = modules.createRequire(join(folder, 'any.js'))
  try {
    return pathToFileURL(resolve('ackbox/handler')).href === handler && resolve('zod') !== ''
  } catch {
    return false
  }
}
