import { basename, join, parse } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { isPowerOfTen, type Logger } from '../runtime/logger.ts'
import { codeOf, isError, memberOf } from '../runtime/text-of.ts'
import type { LoadedHandler } from './loaded.ts'

interface RejectionDeps {
  log: Pick<Logger, 'error'>
  /** The folder of the handlers. */
  folder: string
  /** Undefined until they are loaded. */
  handlers: () => ReadonlyMap<string, LoadedHandler> | undefined
  count: (messageCode: string) => void
}

/** Places whose rejections are counted apart for the log. */
const mostPlaces = 1_000

/**
 * Logs each promise that rejects while nobody awaits it, and keeps the process alive. Only code of a handler or of its libraries
 * makes such promises: a hook that forgets an `await`, or a schema with an async check. The stack tells whose it is. An
 * AsyncLocalStorage around each hook would also tell it without a stack, but it makes every `await` of the process 1.7 times as slow.
 */
export function logRejections({ log, folder, handlers, count }: RejectionDeps): void {
  const times = new Map<string, number>()
  process.on('unhandledRejection', reason => {
    const at = placeIn(folder, reason)
    const messageCode = at === undefined ? 'unknown' : messageCodeOf(handlers()?.values() ?? [], at.file)
    count(messageCode)
    const place = at === undefined ? '' : `${at.file}, line ${at.line}`
    const own = place || originOf(reason)
    const counted = times.has(own) || times.size < mostPlaces ? own : ''
    const n = (times.get(counted) ?? 0) + 1
    times.set(counted, n)
    if (isPowerOfTen(n))
      log.error({ err: reason, messageCode, ...(place === '' ? {} : { place }), times: n }, 'hook.rejected')
  })
}

/** The first line of the stack in this folder. */
function placeIn(folder: string, reason: unknown): { file: string; line: string } | undefined {
  const stack = isError(reason) ? memberOf(reason, 'stack') : undefined
  if (typeof stack !== 'string') return undefined
  const home = pathToFileURL(join(folder, '/')).href
  // A message of megabytes stands before the lines of the stack.
  for (const line of stack.slice(-16_384).split('\n')) {
    const from = line.indexOf(home)
    const [, url, number] = from < 0 ? [] : (/^(\S+?):(\d+):\d+\)?$/.exec(line.slice(from)) ?? [])
    if (url !== undefined && number !== undefined)
      return { file: fileURLToPath(url).slice(join(folder, '/').length), line: number }
  }
  return undefined
}

/** Where an error without a line of a handler comes from, be it a library or Ackbox itself: none must hide behind another in the log. */
function originOf(reason: unknown): string {
  const stack = isError(reason) ? memberOf(reason, 'stack') : undefined
  const [line] = typeof stack === 'string' ? (/^ +at .{1,500}$/m.exec(stack.slice(-16_384)) ?? []) : []
  return line ?? codeOf(reason) ?? ''
}

/** A compiled handler of this project has the name of its source. */
function messageCodeOf(handlers: Iterable<LoadedHandler>, file: string): string {
  for (const handler of handlers)
    if (parse(handler.file).name === parse(file).name && basename(file) === file) return handler.messageCode
  return 'unknown'
}
