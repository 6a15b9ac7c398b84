// What our package.json says, and where it lies: in a clone, in somebody's node_modules, or in the image.
import { existsSync, readFileSync } from 'node:fs'
import { dirname, join, sep } from 'node:path'

/** The folder of our package.json, wherever this file runs from. */
export const packageRoot: string = (() => {
  let folder = import.meta.dirname
  while (!existsSync(join(folder, 'package.json')) && folder !== dirname(folder)) folder = dirname(folder)
  return folder
})()

const { version: ownVersion } = JSON.parse(readFileSync(join(packageRoot, 'package.json'), 'utf8')) as {
  version: string
}
export const version: string = ownVersion

/** A clone has what it is built from; a package and an image have what runs. */
export const isClone: boolean = existsSync(join(packageRoot, 'tsconfig.json'))

/** `key create NAME` as a reader of our messages types it here: by npm, by npx, or by its name in the image. */
export function commandLine(command: string): string {
  if (packageRoot.split(sep).includes('node_modules')) return `npx ackbox ${command}`
  if (!isClone) return `ackbox ${command}`
  const [verb = '', ...rest] = command.split(' ')
  if (verb === 'start') return ['npm start', ...rest].join(' ')
  return ['npm run', verb, ...(rest.length > 0 ? ['--', ...rest] : [])].join(' ')
}
