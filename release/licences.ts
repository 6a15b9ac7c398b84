// npm run licences [-- --check]: writes docs/licences.md from the lock file, or checks it. A licence that is not in the list fails.
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { packageRoot } from '../src/runtime/package.ts'
import { isAllowed } from './allowed.ts'
import { shipped, type Shipped } from './shipped.ts'

/** The packages that are bundled into dist/ui: they are shipped, though an installation does not install them. */
const builtIn = ['preact', '@preact/signals', 'uplot']
const page = path.join(packageRoot, 'docs/licences.md')

/** Every package that runs in production, including the transport clients of the image. */
function installed(): Shipped[] {
  const { peerDependencies } = JSON.parse(readFileSync(path.join(packageRoot, 'package.json'), 'utf8')) as {
    peerDependencies: Record<string, string>
  }
  return shipped([...Object.keys(peerDependencies), ...builtIn])
}

function pageOf(packages: Shipped[]): string {
  const licences = [...new Set(packages.map(one => String(one.license)))].toSorted()
  const lines = licences.map(licence => {
    const names = packages.filter(one => String(one.license) === licence).map(one => one.name)
    return `| ${licence} | ${[...new Set(names)].toSorted().join(', ')} |`
  })
  return `# Licences

Made by \`npm run licences\` from the lock file: every package that runs in production, with those that it brings along. That is the
dependencies, the optional clients of transports, which the image has, and what the pages for browsers are built from.
The SBOM in the package (\`dist/sbom.cdx.json\`) names their versions.

| licence | packages |
|---|---|
${lines.join('\n')}
`
}

const isCheck = process.argv.includes('--check')
const packages = installed()
const refused = packages.filter(one => !isAllowed(one.license))
for (const { name, version, license } of refused)
  console.error(`${name}@${version}: ${String(license)} is not in the list of licences`)
const text = pageOf(packages)
const isStale = !existsSync(page) || readFileSync(page, 'utf8') !== text
if (!isCheck) writeFileSync(page, text)
else if (isStale) console.error('docs/licences.md is out of date: run `npm run licences`')
if (refused.length > 0 || (isCheck && isStale)) process.exitCode = 1
else console.log(`${packages.length} packages, all with licences of the list`)
