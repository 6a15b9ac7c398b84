import { readFileSync } from 'node:fs'
import type { LoadFnOutput, LoadHookContext, ResolveFnOutput, ResolveHookContext } from 'node:module'
import { fileURLToPath } from 'node:url'
import { isTypeScript, stripsTypes, stripTypes } from './typescript.ts'

type Found = ResolveFnOutput | Promise<ResolveFnOutput>

/** URL of the module behind `ackbox/handler`. */
let handler = ''

/** Called before the first `resolve`. Node calls it if the hook runs in its own thread. */
export function initialize(data: { handler: string }): void {
  handler = data.handler
}

/**
 * `ackbox/handler` resolves to the module that this process has loaded, wherever a handler is: a second copy would have its own
 * `env`. zod resolves to ours, unless the handler's folder has its own zod.
 */
export function resolve(
  specifier: string,
  context: ResolveHookContext,
  next: (specifier: string, context?: Partial<ResolveHookContext>) => Found
): Found {
  if (specifier === 'ackbox/handler') return { url: handler, shortCircuit: true }
  if (specifier !== 'zod' && !specifier.startsWith('zod/')) return next(specifier, context)
  const ours = (): Found => next(specifier, { ...context, parentURL: handler })
  try {
    const theirs = next(specifier, context)
    return theirs instanceof Promise ? theirs.catch(ours) : theirs
  } catch {
    return ours()
  }
}

/** Loads a TypeScript handler as an ES module, whatever package it is in, if Node cannot load it by itself. */
export function load(
  url: string,
  context: LoadHookContext,
  next: (url: string, context?: Partial<LoadHookContext>) => LoadFnOutput | Promise<LoadFnOutput>
): LoadFnOutput | Promise<LoadFnOutput> {
  if (stripsTypes || !url.startsWith('file:') || !isTypeScript(url)) return next(url, context)
  const path = fileURLToPath(url)
  return { format: 'module', source: stripTypes(readFileSync(path, 'utf8'), path), shortCircuit: true }
}
