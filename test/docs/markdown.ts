import { readFileSync } from 'node:fs'
import path from 'node:path'

export interface Block {
  language: string
  text: string
}

export interface Page {
  /** Relative to the project's root. */
  file: string
  text: string
  blocks: Block[]
  /** Targets of links and images, without those to other sites. */
  links: string[]
  /** The targets of `#…` links: GitHub's slugs of the headings. */
  anchors: Set<string>
  /** The text between backticks, outside of blocks. */
  code: string[]
}

/** Parses only the Markdown that our own pages use. */
export function page(root: string, file: string): Page {
  const blocks: Block[] = []
  const text = readFileSync(path.join(root, file), 'utf8')
  const prose = text.replaceAll(/^```(\w*)\n([^]*?)^```$/gm, (_, language: string, inner: string) => {
    blocks.push({ language, text: inner })
    return ''
  })
  const headings = [...prose.matchAll(/^#+ (.+)$/gm)].map(([, heading = '']) => heading)
  return {
    file,
    text,
    blocks,
    links: [...prose.matchAll(/\]\(([^)\s]+)\)|\bsrc="([^"]+)"/g)]
      .map(([, target, image = '']) => target ?? image)
      .filter(target => !/^[a-z]+:/.test(target)),
    anchors: new Set(headings.map(slug)),
    code: [...prose.matchAll(/`([^`\n]+)`/g)].map(([, code = '']) => code)
  }
}

export const slug = (heading: string): string =>
  heading
    .toLowerCase()
    .replaceAll(/[^\p{L}\p{N} _-]/gu, '')
    .replaceAll(' ', '-')

/** The commands of shell text, one per line. A backslash at the end of a line continues the command. */
export const commands = (text: string): string[] =>
  text
    .replaceAll('\\\n', ' ')
    .split('\n')
    .map(line => line.trim())
    .filter(line => line !== '' && !line.startsWith('#'))
