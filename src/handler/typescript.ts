// Loads TypeScript if Node does not strip types itself (before 22.18), and finds the line at which a handler fails to load.
import { spawnSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { basename, dirname, join, resolve, sep } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import type * as Swc from '@swc/wasm-typescript'
import { isError } from '../runtime/text-of.ts'

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
    error.stack = `${pathToFileURL(path).href}:${startLine ?? 1}\n${snippet ?? ''}\nSyntaxError: ${error.message}`
    throw error
  }
}

/**
 * Where the import of `path` failed, such as `name.ts, line 4`: in this file, in a file that it imports, or in its folder.
 * Undefined: unknown. It never throws.
 */
export function placeOf(err: unknown, path: string): string | undefined {
  if (!isError(err)) return undefined
  try {
    return (err instanceof SyntaxError && placeOfSyntaxError(err, path)) || placeOfThrow(err, dirname(path))
  } catch {
    return undefined
  }
}

function placeOfSyntaxError({ message, stack = '' }: SyntaxError, path: string): string | undefined {
  const [, url, line] = /^(file:\S+):(\d+)$/m.exec(stack.split('\n    at ')[0] ?? '') ?? []
  if (url !== undefined) return `${basename(fileURLToPath(url))}, line ${line}`
  // Node names an imported JSON file and the position in it.
  const [, json, position] = /^(\S.*\.json): .* at position (\d+)/.exec(message) ?? []
  if (json !== undefined)
    return `${basename(json)}, line ${readFileSync(json, 'utf8').slice(0, Number(position)).split('\n').length}`
  // V8 knows the place, but Node shows it only for an error that ends a process.
  for (const each of withImports(path)) {
    const found = lineOfError(each)
    if (found !== undefined) return `${basename(each)}, line ${found}`
  }
  return undefined
}

/** The first line of the stack that is in this folder. */
function placeOfThrow({ stack = '' }: Error, folder: string): string | undefined {
  for (const [, url = '', line] of stack.matchAll(/(file:\/\/\S+?):(\d+):\d+/g)) {
    const file = fileURLToPath(url)
    if (file.startsWith(folder + sep)) return `${basename(file)}, line ${line}`
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

/** A file and the local modules that it imports, directly or indirectly. */
function withImports(path: string, found = new Set<string>()): Set<string> {
  // The text may name what is no file, for example in a comment.
  const isModule = /\.m?[jt]s$/.test(path) && statSync(path, { throwIfNoEntry: false })?.isFile()
  if (found.has(path) || !isModule) return found
  found.add(path)
  for (const [, name = ''] of readFileSync(path, 'utf8').matchAll(
    /\b(?:from|import)\s*\(?\s*['"](\.[^'"]+)['"]/g
  ))
    withImports(resolve(dirname(path), name), found)
  return found
}
