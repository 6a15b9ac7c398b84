// The things that a page and its translation must have in common, and their differences.
import path from 'node:path'
import type { Page } from './markdown.ts'

/** The English pages by their file, and the Chinese ones by the file of the English page. */
export interface Languages {
  english: ReadonlyMap<string, Page>
  chinese: ReadonlyMap<string, Page>
}

const outsideDocs: Readonly<Record<string, string>> = {
  'docs/zh/contributing.md': 'CONTRIBUTING.md',
  'docs/zh/examples.md': 'examples/README.md',
  'docs/zh/security.md': 'SECURITY.md'
}

/** `README.zh-CN.md` → `README.md`, `docs/zh/order.md` → `docs/order.md`, `docs/zh/security.md` → `SECURITY.md`. */
export const englishOf = (file: string): string =>
  outsideDocs[file] ?? file.replace(/\.zh-CN\.md$/, '.md').replace(/^docs\/zh\//, 'docs/')

const isChinese = (file: string): boolean => englishOf(file) !== file
const hasHan = (text: string): boolean => /\p{Script=Han}/u.test(text)

/** The differences, one sentence each. Empty if the translation matches the page. */
export function differences(english: Page, chinese: Page, languages: Languages): string[] {
  const [left, right] = [parts(english.text), parts(chinese.text)]
  const at = left.findIndex((part, index) => part.kind !== right[index]?.kind)
  const shape = (part: Part | undefined): string => part?.kind ?? 'the end'
  const built =
    at === -1 && left.length === right.length
      ? right.flatMap((part, index) => blockDiffers(left[index], part))
      : [
          `part ${at === -1 ? left.length : at} is ${shape(left.at(at === -1 ? left.length : at))}, and ${shape(right[at === -1 ? left.length : at])} in Chinese`
        ]
  return [
    ...built,
    ...unlike('code', codeOf(left), codeOf(right)),
    ...unlike('number', numbersOf(left), numbersOf(right)),
    ...unlike('link', linksOf(english, languages), linksOf(chinese, languages)),
    ...linksOf(chinese, languages).filter(link => link.endsWith(' (English)')),
    ...right
      .filter(({ kind, text }) => /^(text|item|h\d)/.test(kind) && /[a-z]{4}.* [a-z]{3}/.test(bare(text)))
      .filter(({ text }) => !hasHan(text))
      .map(({ text }) => `not translated: ${text.slice(0, 60)}`)
  ]
}

/** The mark of a link to a page that exists only in English. */
const inEnglish = '（英文）'

/** The links of a Chinese page with a wrong mark. Only links to pages that exist only in English have one. */
export function wronglyMarked({ file, text }: Page, { english, chinese }: Languages): string[] {
  const unquoted = text.replaceAll(/^```[^]*?^```$/gm, '')
  return [...unquoted.matchAll(/\]\(([^)\s#]+)[^)\s]*\)(.{0,4})/g)].flatMap(([, target = '', next = '']) => {
    const led = path.join(path.dirname(file), target)
    const isPage = target.endsWith('.md') && !/^[a-z]+:/.test(target)
    // A page also links to its own version in the other language.
    const isOnly = isPage && !isChinese(led) && led !== englishOf(file) && !chinese.has(led)
    if (isOnly === next.startsWith(inEnglish)) return []
    if (isOnly) return [`not marked with ${inEnglish}: ${led}`]
    return [
      `marked with ${inEnglish}, but ${english.has(englishOf(led)) ? 'it is there in Chinese' : 'no English page'}: ${led}`
    ]
  })
}

interface Part {
  /** `h2`, `text`, `item`, `table 3×2`, `block sh`. */
  kind: string
  text: string
}

/** The page from top to bottom. Lines of a paragraph, a table or a block are one part. */
function parts(page: string): Part[] {
  const found: Part[] = []
  let before = ''
  let language: string | undefined
  for (const line of page.split('\n')) {
    const last = found.at(-1)
    const fence = /^```(\w*)/.exec(line)?.[1]
    if (language !== undefined && last) {
      if (fence === undefined) last.text += `${line}\n`
      else language = undefined
    } else if (fence !== undefined) {
      found.push({ kind: `block ${fence}`, text: '' })
      language = fence
    } else {
      const kind = kindOf(line, before)
      const blank = last?.kind === 'block' && kind === 'block' && before === '' ? '\n' : ''
      const goesOn = kind === 'on' || (kind === last?.kind && /^(block|table)$/.test(kind))
      if (last && goesOn) last.text += `${blank}\n${line}`
      else if (kind !== '') found.push({ kind, text: line })
    }
    before = line
  }
  return found.map(part => (part.kind === 'table' ? { ...part, kind: sized(part.text) } : part))
}

function kindOf(line: string, before: string): string {
  if (line.trim() === '') return ''
  const heading = /^(#+) /.exec(line)?.[1]
  if (heading) return `h${heading.length}`
  if (line.startsWith('|')) return 'table'
  if (/^ {4}/.test(line) && (before === '' || /^ {4}/.test(before))) return 'block'
  if (/^ *(?:-|\d+\.) /.test(line)) return 'item'
  return before.trim() === '' || before.startsWith('#') ? 'text' : 'on'
}

function sized(table: string): string {
  const rows = table.split('\n')
  return `table ${rows.length}×${(rows[1] ?? '').split('|').length - 2}`
}

const isDrawing = ({ kind, text }: Part): boolean => kind === 'block ' && /[─│►▼]/.test(text)
/** `POST`, `/tasks`, `201`, `BullMQ`. */
const namesOf = (text: string): string[] => text.match(/\/\w+|\d+|\b[A-Z]\w+|\w+\.ts/g) ?? []

/** Comments are ignored. In a plain block a Chinese line may replace its English line. A drawing may have other lines. */
function blockDiffers(english: Part | undefined, chinese: Part): string[] {
  if (english === undefined || !chinese.kind.startsWith('block')) return []
  if (isDrawing(english)) return unlike('name of a drawing', namesOf(english.text), namesOf(chinese.text))
  const [left, right] = [english, chinese].map(part => part.text.trimEnd().split('\n').map(said(part.kind)))
  const plain = chinese.kind === 'block'
  return (right ?? []).length === (left ?? []).length
    ? (right ?? []).flatMap((line, index) =>
        line === left?.[index] || (plain && hasHan(line)) ? [] : [`block: ${left?.[index]} ≠ ${line}`]
      )
    : [`block of ${left?.length} lines, ${right?.length} in Chinese: ${left?.[0]}`]
}

const comments: Record<string, RegExp> = {
  sql: /(^|\s)-- .*$/,
  ts: /(^|\s)\/\/ .*$/,
  block: /(?<=\S) {3,}.*$/
}

const said =
  (kind: string) =>
  (line: string): string =>
    line
      .replace(comments[kind.replace('block ', '')] ?? /(^|\s)#.*$/, '')
      .replace(/\s+#.*$/, '')
      .replace(/(?<!:)\/\/ .*$/, '')
      .trim()

const prose = (all: Part[]): string =>
  all.flatMap(({ kind, text }) => (kind.startsWith('block') ? [] : [text.replaceAll(/\s+/g, ' ')])).join('\n')

const codeOf = (all: Part[]): string[] => [
  ...new Set([...prose(all).matchAll(/`([^`]+)`/g)].map(([, code = '']) => code))
]

/** Text as a reader sees it, without code and the targets of links. */
const bare = (text: string): string =>
  text.replaceAll(/`[^`]+`|\]\([^)]*\)|<[^>]*>|\p{Lu}[\p{L}\p{N}.]*/gu, ' ')

const numbersOf = (all: Part[]): string[] =>
  [...bare(prose(all).replaceAll(/^ *\d+\. /gm, '')).matchAll(/\d[\d,.:]*/g)].map(([number]) =>
    number.replace(/[,.:]$/, '')
  )

/** The targets of links: the English file, and the index of the heading in it. A picture may show Chinese texts. */
function linksOf({ file, text }: Page, { english, chinese }: Languages): string[] {
  const unquoted = text.replaceAll(/^```[^]*?^```$/gm, '')
  const targets = [...unquoted.matchAll(/\]\(([^)\s]+)\)|<img src="([^"]+)"|<(https?:[^>]+)>/g)]
  return targets.map(([, link, image, address]) => {
    const [target = '', anchor] = (link ?? image ?? address ?? '').replace(/-zh\.png$/, '-en.png').split('#')
    if (/^[a-z]+:/.test(target)) return target
    const led = target === '' ? file : path.join(path.dirname(file), target)
    const home = englishOf(led)
    const page = isChinese(led) ? chinese.get(home) : english.get(led)
    const place = anchor === undefined ? '' : `#${[...(page?.anchors ?? [])].indexOf(anchor)}`
    const missed =
      isChinese(file) && !isChinese(led) && chinese.has(led) && led !== englishOf(file) ? ' (English)' : ''
    return `${home}${place}${missed}`
  })
}

function unlike(what: string, english: string[], chinese: string[]): string[] {
  const less = (from: string[], those: string[]): string[] => {
    const rest = [...those]
    return from.filter(one => {
      const found = rest.indexOf(one)
      if (found !== -1) rest.splice(found, 1)
      return found === -1
    })
  }
  return [
    ...less(english, chinese).map(one => `${what} missing in Chinese: ${one}`),
    ...less(chinese, english).map(one => `${what} only in Chinese: ${one}`)
  ]
}
