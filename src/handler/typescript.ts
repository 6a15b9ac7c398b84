// Loads TypeScript if Node does not strip types itself (before 22.18), and finds the line of a SyntaxError.
import { spawnSync } from 'node:child_process'
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { basename, dirname, join, resolve } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import type * as Swc from '@swc/wasm-typescript'

/** Whether this Node runs TypeScript without our help. */
export const stripsTypes: boolean = Boolean('typescript' in process.features && process.features.typescript)

export const isTypeScript = (path: string): boolean => /\.m?ts$/.test(path)

/** Replaces types with blanks, as Node does: lines and columns stay the same. Throws a SyntaxError with its place. */
export function stripTypes(source: string, path: string): string {
  // Four megabytes, needed only by an old Node. Newer versions have the same code built in.
  const swc = createRequire(import.meta.url)('@swc/wasm-typescript') as typeof Swc
  try {
    return swc.transformSync(source, { mode: 'strip-only', module: true, filename: path }).code
  } catch (err) {
    // swc throws plain objects.
    const { message, startLine, snippet } = err as { message: string; startLine?: number; snippet?: string }
    const error = new SyntaxError(message)
    error.stack = `${pathToFileURL(path).href}:${startLine ?? 1}\n${snippet ?? ''}\n${String(error)}`
    throw error
  }
}

/** The place of an import's SyntaxError, such as `name.ts, line 4`. Searches `path` and the local files that it imports. */
export function placeOf(err: unknown, path: string): string | undefined {
  if (!(err instanceof SyntaxError)) return undefined
  const [, url, line] = /^(file:\S+):(\d+)$/m.exec(err.stack?.split('\n    at ')[0] ?? '') ?? []
  if (url !== undefined) return `${basename(fileURLToPath(url))}, line ${line}`
  // V8 knows the place, but Node shows it only for an error that ends a process.
  for (const each of withImports(path)) {
    const found = lineOfError(each)
    if (found !== undefined) return `${basename(each)}, line ${found}`
  }
  return undefined
}

function lineOfError(path: string): string | undefined {
  const folder = mkdtempSync(join(tmpdir(), 'ackbox-'))
  try {
    const source = readFileSync(path, 'utf8')
    const copy = join(folder, 'module.mjs')
    writeFileSync(copy, isTypeScript(path) ? stripTypes(source, path) : source)
    const { stderr } = spawnSync(process.execPath, ['--check', copy], { encoding: 'utf8', env: {} })
    return /module\.mjs:(\d+)$/m.exec(stderr)?.[1]
  } catch (err) {
    return /:(\d+)$/m.exec(err instanceof SyntaxError ? (err.stack ?? '') : '')?.[1]
  } finally {
    rmSync(folder, { recursive: true })
  }
}

/** A file and the local files that it imports, directly or indirectly. */
function withImports(path: string, found = new Set<string>()): Set<string> {
  if (found.has(path) || !existsSync(path)) return found
  found.add(path)
  for (const [, name = ''] of readFileSync(path, 'utf8').matchAll(
    /\b(?:from|import)\s*\(?\s*['"](\.[^'"]+)['"]/g
  ))
    withImports(resolve(dirname(path), name), found)
  return found
}
