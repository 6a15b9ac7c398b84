// The version of this package, and where it is installed: in a clone, in a project's node_modules, or in the image.
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

/** Only a clone has the sources and their tsconfig.json. */
export const isClone: boolean = existsSync(join(packageRoot, 'tsconfig.json'))

/** A package that npm linked lies elsewhere, but its program is still started from node_modules/.bin. */
const isInstalled = [packageRoot, process.argv[1] ?? ''].some(path =>
  path.split(sep).includes('node_modules')
)

/** The command line for `key create NAME`: `npm run` in a clone, `npx ackbox` in a project, `ackbox` in the image. */
export function commandLine(command: string): string {
  if (isInstalled) return `npx ackbox ${command}`
  if (!isClone) return `ackbox ${command}`
  const [verb = '', ...rest] = command.split(' ')
  // npm would run it in the clone's folder, and it creates a project in the folder where it runs.
  if (verb === 'init') return `${join(packageRoot, 'dist/src/cli/ackbox.js')} ${command}`
  if (verb === 'start') return ['npm start', ...(rest.length > 0 ? ['--', ...rest] : [])].join(' ')
  return ['npm run', verb, ...(rest.length > 0 ? ['--', ...rest] : [])].join(' ')
}
