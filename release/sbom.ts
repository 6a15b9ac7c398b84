// Run by npm pack: writes dist/sbom.cdx.json, the CycloneDX list of the packages in an installation of this package.
import { execFileSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import path from 'node:path'
import { packageRoot } from '../src/runtime/package.ts'
import { shipped } from './shipped.ts'

interface Sbom {
  metadata: { component: { name: string; 'bom-ref': string } }
  components: { 'bom-ref': string }[]
  dependencies: { ref: string; dependsOn: string[] }[]
}

const text = execFileSync('npm', ['sbom', '--package-lock-only', '--sbom-format', 'cyclonedx'], {
  cwd: packageRoot,
  encoding: 'utf8',
  maxBuffer: 1e8,
  stdio: ['ignore', 'pipe', 'ignore']
})
const sbom = JSON.parse(text) as Sbom
const refs = new Set([
  sbom.metadata.component['bom-ref'],
  ...shipped([]).map(({ name, version }) => `${name}@${version}`)
])
const components = sbom.components.filter(one => refs.has(one['bom-ref']))
const listed = new Set(components.map(one => one['bom-ref']))
const missing = [...refs].filter(ref => !listed.has(ref) && ref !== sbom.metadata.component['bom-ref'])
if (missing.length > 0) throw new Error(`npm sbom does not list ${missing.join(', ')}`)
// npm uses the name of the folder.
sbom.metadata.component.name = 'ackbox'
const dependencies = sbom.dependencies
  .filter(one => refs.has(one.ref))
  .map(({ ref, dependsOn }) => ({ ref, dependsOn: dependsOn.filter(name => refs.has(name)) }))
const json = JSON.stringify({ ...sbom, components, dependencies }, null, 1)
writeFileSync(path.join(packageRoot, 'dist/sbom.cdx.json'), `${json}\n`)
