import { existsSync, readFileSync } from 'node:fs'
import path from 'node:path'

/** The version in our package.json, wherever this file runs from. */
export const version: string = (() => {
  let at = import.meta.dirname
  while (!existsSync(path.join(at, 'package.json')) && at !== path.dirname(at)) at = path.dirname(at)
  const { version } = JSON.parse(readFileSync(path.join(at, 'package.json'), 'utf8')) as { version: string }
  return version
})()
