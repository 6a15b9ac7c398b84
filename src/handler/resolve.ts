import * as modules from 'node:module'
import { initialize, load, resolve } from './hooks.ts'
import { stripsTypes } from './typescript.ts'

/** Since Node 22.15; our types are those of the oldest Node that we run on. */
const { registerHooks } = modules as {
  registerHooks?: (hooks: { resolve: typeof resolve; load: typeof load }) => void
}

let registered = false

/**
 * Makes `ackbox/handler` resolve in folders outside of the project; inside of it package self-reference does. And makes
 * TypeScript load, where there is some and this Node cannot.
 */
export function prepareForHandlers({ outside, typescript }: { outside: boolean; typescript: boolean }): void {
  const handler = import.meta
    .resolve('./define.js')
    .replace(/\.js$/, import.meta.url.endsWith('.ts') ? '.ts' : '.js')
  const reads = stripsTypes || !typescript
  if (registered || (!outside && reads && resolvesTo('ackbox/handler') === handler)) return
  registered = true
  // In this thread where that can be: one of its own costs 20 MiB.
  if (registerHooks) {
    initialize({ handler })
    registerHooks({ resolve, load })
  } else modules.register('./hooks.js', import.meta.url, { data: { handler } })
}

function resolvesTo(specifier: string): string | undefined {
  try {
    return import.meta.resolve(specifier)
  } catch {
    return undefined
  }
}
