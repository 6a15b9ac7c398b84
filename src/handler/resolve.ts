import { register } from 'node:module'

// `ackbox/handler` must be this very module, wherever a handler lies: a second copy would read another `env`. zod comes
// with it, unless the folder has one of its own. `data:`, so that it needs no file that bundlers and tsc would lose.
const hooks = `
  let handler
  export function initialize (data) { handler = data.handler }
  export async function resolve (specifier, context, next) {
    if (specifier === 'ackbox/handler') return { url: handler, shortCircuit: true }
    try {
      return await next(specifier, context)
    } catch (err) {
      if (specifier !== 'zod' && !specifier.startsWith('zod/')) throw err
      return next(specifier, { ...context, parentURL: handler })
    }
  }`

let registered = false

/** Makes `ackbox/handler` resolve in folders outside of the project; inside of it package self-reference does. */
export function resolveForHandlers(outside: boolean): void {
  const handler = import.meta
    .resolve('./define.js')
    .replace(/\.js$/, import.meta.url.endsWith('.ts') ? '.ts' : '.js')
  if (registered || (!outside && resolvesTo('ackbox/handler') === handler)) return
  registered = true
  register(`data:text/javascript,${encodeURIComponent(hooks)}`, { data: { handler } })
}

function resolvesTo(specifier: string): string | undefined {
  try {
    return import.meta.resolve(specifier)
  } catch {
    return undefined
  }
}
