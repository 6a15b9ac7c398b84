import { readFileSync } from 'node:fs'

/** A file whose bytes are text in another encoding than UTF-8. The message names the remedy. */
export class EncodingError extends Error {
  override name = 'EncodingError'
}

/**
 * Reads a text that people write: settings, a key. Editors on Windows begin a file with a byte order mark, and files joined by a shell
 * have one in a later line: none belongs to a name. PowerShell writes UTF-16, where each letter would be read with a NUL.
 */
export function readTextFile(path: string): string {
  const bytes = readFileSync(path)
  const mark = bytes.subarray(0, 2).toString('hex')
  if (mark === 'fffe' || mark === 'feff' || bytes.includes(0))
    throw new EncodingError(`${path} is not UTF-8 (it looks like UTF-16): save it as UTF-8`)
  return bytes.toString('utf8').replaceAll(/^\uFEFF+/gm, '')
}
