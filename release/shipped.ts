import { readFileSync } from 'node:fs'
import path from 'node:path'
import { packageRoot } from '../src/runtime/package.ts'

interface Locked {
  version?: string
  license?: string
  dependencies?: Record<string, string>
  optionalDependencies?: Record<string, string>
  peerDependencies?: Record<string, string>
  peerDependenciesMeta?: Record<string, { optional?: boolean }>
}
export interface Shipped {
  name: string
  version: string
  license: string | undefined
}

/**
 * The packages of the lock file that `dependencies` and `others` install. npm's own `--omit=dev` is wrong here: `npm sbom` omits some
 * packages that are also a peer or development dependency, and `npm ls` counts the optional peers of drizzle-orm.
 */
export function shipped(others: readonly string[]): Shipped[] {
  const lock = JSON.parse(readFileSync(path.join(packageRoot, 'package-lock.json'), 'utf8')) as {
    packages: Record<string, Locked>
  }
  const { packages } = lock
  const places = new Set<string>()
  const add = (from: string, names: Iterable<string>): void => {
    for (const name of names) {
      const place = placeOf(packages, from, name)
      if (place !== undefined) places.add(place)
    }
  }
  add('', [...Object.keys(packages['']?.dependencies ?? {}), ...others])
  for (const place of places) {
    const { dependencies, optionalDependencies, peerDependencies, peerDependenciesMeta } =
      packages[place] ?? {}
    const peers = Object.keys(peerDependencies ?? {}).filter(name => !peerDependenciesMeta?.[name]?.optional)
    add(place, [...Object.keys({ ...dependencies, ...optionalDependencies }), ...peers])
  }
  return [...places].map(place => ({
    name: place.slice(place.lastIndexOf('node_modules/') + 'node_modules/'.length),
    version: packages[place]?.version ?? '',
    license: packages[place]?.license
  }))
}

/** The path where Node finds the package: in the nearest node_modules upwards. */
function placeOf(packages: Record<string, Locked>, from: string, name: string): string | undefined {
  for (let at = from; ; at = at.slice(0, Math.max(0, at.lastIndexOf('/node_modules/')))) {
    const place = `${at === '' ? '' : `${at}/`}node_modules/${name}`
    if (packages[place] || at === '') return packages[place] && place
  }
}
