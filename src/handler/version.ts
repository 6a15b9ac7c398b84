// The version of a handler: a number that changes with its file, its helpers, or a setting that it reads. So a reader of an old attempt
// can tell whether the present handler would make the same request.
import { hash } from 'node:crypto'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { isSecretSetting } from '../domain/redact.ts'
import { codeOf } from '../runtime/text-of.ts'

/** Secrets are left out: the version is shown, and a short secret could be guessed from it. */
export function versionOf(
  texts: readonly string[],
  names: Iterable<string>,
  env: Readonly<Record<string, string | undefined>>
): number {
  const settings = [...names].filter(name => !isSecretSetting(name)).toSorted()
  const parts = [...texts, ...settings.map(name => [name, env[name] ?? null])]
  return hash('sha256', JSON.stringify(parts), 'buffer').readInt32BE(0)
}

/** The folder may be that of a whole project. */
const mostHelpers = 1_000

/** The code and the JSON that handlers of this folder may import, as one hash: subfolders, and files whose names start with `_`. */
export function helpersOf(folder: string): string {
  const texts: string[] = []
  let files = 0
  const read = (path: string, isTop: boolean): void => {
    for (const entry of readdirSync(path, { withFileTypes: true }).toSorted((a, b) =>
      a.name < b.name ? -1 : 1
    )) {
      const { name } = entry
      const inner = join(path, name)
      if (files === mostHelpers) return
      if (entry.isDirectory() && name !== 'node_modules' && !name.startsWith('.')) read(inner, false)
      else if (entry.isFile() && /\.(?:[cm]?[jt]s|json)$/.test(name) && (!isTop || name.startsWith('_'))) {
        files++
        texts.push(inner.slice(folder.length), hash('sha256', readFileSync(inner)))
      }
    }
  }
  try {
    read(folder, true)
  } catch (err) {
    // A helper that cannot be read is an error only of the handler that imports it.
    texts.push(codeOf(err) ?? '')
  }
  return hash('sha256', texts.join('\n'))
}
