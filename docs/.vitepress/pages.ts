// Which files are pages of the site, where each one is, and what its links lead to.
import { cpSync, existsSync, mkdirSync, readFileSync, readdirSync, statSync, writeFileSync } from 'node:fs'
import path from 'node:path'

export const root = path.resolve(import.meta.dirname, '../..')

/** Beside docs/: pages that are read on their own, too. */
const others = ['README.md', 'README.zh-CN.md', 'CHANGELOG.md', 'CONTRIBUTING.md', 'SECURITY.md', 'examples/README.md']

/** Globs of all that is no page. */
export const excluded = [
  ...readdirSync(root)
    .filter(name => !['docs', 'examples'].includes(name))
    .map(name => (statSync(path.join(root, name)).isDirectory() ? `${name}/**` : name))
    .filter(name => !others.includes(name)),
  'examples/*/**'
]

/** All pages, from the project's root. */
export const pages = [
  ...others.filter(file => existsSync(path.join(root, file))),
  ...readdirSync(path.join(root, 'docs'), { recursive: true, encoding: 'utf8' })
    .filter(file => file.endsWith('.md') && !file.includes('['))
    .map(file => `docs/${file.replaceAll(path.sep, '/')}`)
]

/** `docs/zh/order.md` → `zh/order.md`, `README.md` → `index.md`. */
export const routeOf = (file: string): string =>
  file === 'README.md' ? 'index.md' : file === 'README.zh-CN.md' ? 'zh/index.md' : file.replace(/^docs\//, '')

/** The first heading of a page, as plain text. */
export const titleOf = (file: string): string =>
  (/^# (.+)$/m.exec(readFileSync(path.join(root, file), 'utf8'))?.[1] ?? file).replaceAll('`', '')

/** Files that are no pages and that a page leads to: they are copied beside the pages. */
const linked = new Set<string>()

/** Where a link of this page leads to on the site. Throws for what is not there. */
export function linkOf(file: string, href: string): string {
  if (/^[a-z]+:|^#|^\//.test(href)) return href
  const [target = '', anchor] = href.split('#')
  const led = path.posix.join(path.posix.dirname(file), decodeURI(target))
  const place = anchor === undefined ? '' : `#${anchor}`
  if (pages.includes(led)) return `/${routeOf(led)}${place}`
  if (led.startsWith('../') || !existsSync(path.join(root, led))) throw new Error(`${file}: a dead link: ${href}`)
  linked.add(led)
  return `/files/${led}.txt`
}

/** A folder becomes one text of all its files. */
export function copyLinked(to: string): void {
  for (const file of linked) {
    const [from, copy] = [path.join(root, file), path.join(to, 'files', `${file}.txt`)]
    mkdirSync(path.dirname(copy), { recursive: true })
    if (statSync(from).isDirectory()) writeFileSync(copy, textOf(from))
    else cpSync(from, copy)
  }
}

const textOf = (folder: string): string =>
  readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter(file => !/(^|\/)(target|node_modules|\.)/.test(file) && statSync(path.join(folder, file)).isFile())
    .toSorted()
    .map(file => `==> ${file} <==\n\n${readFileSync(path.join(folder, file), 'utf8')}`)
    .join('\n')
