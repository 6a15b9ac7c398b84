// npm run openapi:compat: checks that the API still has everything that the last release promised.
import { readdirSync, readFileSync } from 'node:fs'
import path from 'node:path'
import { packageRoot, version } from '../src/runtime/package.ts'
import { breaks, type Json } from './breaks.ts'

const folder = path.join(packageRoot, 'openapi')
const read = (name: string): Json => JSON.parse(readFileSync(path.join(folder, name), 'utf8')) as Json
const released = readdirSync(folder)
  // A new major version may take away.
  .filter(name => /^\d+\.\d+\.json$/.test(name) && name.split('.')[0] === version.split('.')[0])
  .toSorted((a, b) => a.localeCompare(b, 'en', { numeric: true }))
const last = released.at(-1)
if (last === undefined) console.log('openapi/ has no release yet: the API may still change')
else {
  const found = breaks(read(last), read('openapi.json'))
  for (const line of found) console.error(line)
  console.log(`${found.length} breaks since openapi/${last}`)
  if (found.length > 0) process.exitCode = 1
}
