import type { Socket } from 'node:net'

/** The parts of undici's parser that are used here. They have no public name; package.json fixes the version. */
interface Parser {
  ptr: number
  llhttp: Record<
    'llhttp_set_lenient_headers' | 'llhttp_set_lenient_spaces_after_chunk_size',
    (ptr: number, isLenient: 0 | 1) => void
  >
  contentLength: string
  onHeadersComplete(status: number, isUpgrade: boolean, shouldKeepAlive: boolean): number
}

/** Ends the headers without a body. */
const noBody = 1

/**
 * Makes undici read what HTTP allows servers to send, and undici refuses:
 *
 * - 100 without an `Expect` of ours. It is passed over, like each 1xx (RFC 9110, section 15.2).
 * - A header line that is continued on the next line (RFC 9112, section 5.2). `cleaned` refuses what this lets through besides.
 * - A size of a chunk that is filled up with spaces, as old servers do.
 * - 204 and 304 with the length of a body. They have none (RFC 9112, section 6.3).
 *
 * The socket must have its parser: undici makes it in the callback of `connect`.
 */
export function tolerate(socket: Socket): void {
  const parser = parserOf(socket)
  if (!parser) return
  const complete = parser.onHeadersComplete.bind(parser)
  parser.llhttp.llhttp_set_lenient_headers(parser.ptr, 1)
  parser.llhttp.llhttp_set_lenient_spaces_after_chunk_size(parser.ptr, 1)
  parser.onHeadersComplete = (status, isUpgrade, shouldKeepAlive) => {
    if (status !== 204 && status !== 304)
      return complete(status === 100 ? 102 : status, isUpgrade, shouldKeepAlive)
    const isSized = parser.contentLength !== ''
    parser.contentLength = ''
    const next = complete(status, isUpgrade, shouldKeepAlive)
    return isSized && next === 0 ? noBody : next
  }
}

function parserOf(socket: Socket): Parser | undefined {
  const symbol = Object.getOwnPropertySymbols(socket).find(each => each.description === 'parser')
  return symbol && (socket as unknown as Record<symbol, Parser | undefined>)[symbol]
}
