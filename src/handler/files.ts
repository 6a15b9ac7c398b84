import { existsSync, readdirSync, statSync } from 'node:fs'
import { join, parse, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { packageRoot } from '../runtime/package.ts'

/** The `handlers/` folder that belongs to this code: compiled in dist, or the sources if this runs from src. */
export const builtInHandlers = fileURLToPath(new URL('../../handlers', import.meta.url))

export interface HandlerFile {
  path: string
  /** The file name for its author: the name of the source, if the file was compiled from the project's own handlers. */
  name: string
}

/** The handler files of a folder, in order, also those of CommonJS, which are an error. Subfolders and files whose names start with `_` are helpers. */
export function handlerFiles(folder: string): HandlerFile[] | undefined {
  if (!statSync(folder, { throwIfNoEntry: false })?.isDirectory()) return undefined
  return readdirSync(folder, { withFileTypes: true })
    .filter(entry => !entry.isDirectory())
    .map(entry => entry.name)
    .filter(name => /\.[cm]?[jt]s$/.test(name) && !/^[._]|\.d\.[cm]?ts$|\.test\.[cm]?[jt]s$/.test(name))
    .toSorted()
    .flatMap(name => {
      const source = sourceOf(folder, name)
      return source ? [{ path: join(folder, name), name: source }] : []
    })
}

/** tsc leaves the compiled file of a deleted handler in dist. Undefined: it must not be loaded. */
function sourceOf(folder: string, name: string): string | undefined {
  const sources = join(packageRoot, 'handlers')
  if (folder !== resolve(builtInHandlers) || folder === sources || !existsSync(sources)) return name
  return ['.ts', '.mts', '.js', '.mjs', '.cts', '.cjs']
    .map(ending => parse(name).name + ending)
    .find(each => existsSync(join(sources, each)))
}
