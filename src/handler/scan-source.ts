/** What the text of a handler says about its settings and its servers. */
export interface Scanned {
  /** The names that it reads from `env`. They are found in the text, before a task needs them. */
  names: Set<string>
  /** Those of the names that it asks for with `'NAME' in env`. */
  optional: Set<string>
  /** The origins that are written out, in url`…` or as the text of a `url`. */
  origins: string[]
}

export function scanSource(source: string): Scanned {
  const code = plainCode(source)
  const texts = plainCode(source, undefined, text => text)
  const written = [
    ...code.matchAll(/\burl`(?<origin>https?:\/\/[^/?#`$\s@]+)/g),
    // A text counts only as a `url`, and only if nothing more is appended to its host: others are namespaces or links.
    ...texts.matchAll(/\burl\s*:\s*(['"])(?<origin>https?:\/\/[\w.:[\]-]+)(?:[/?#][^'"]*\1|\1(?!\s*\+))/g),
    ...texts.matchAll(/\burl\s*:\s*`(?<origin>https?:\/\/[\w.:[\]-]+)[/?#`]/g)
  ]
  const origins = new Set(written.map(({ groups }) => groups?.['origin'] ?? ''))
  const imports = /import\s*\{([^}]*)\}\s*from\s*['"]ackbox\/handler['"]/.exec(code)?.[1] ?? ''
  if (!/(^|[\s,])env\s*(,|$)/.test(imports.trim()))
    return { names: new Set(), optional: new Set(), origins: [...origins] }
  const reads = plainCode(source, withoutText).matchAll(
    /(?<![\w$.])env(?:\.([A-Za-z_]\w*)|\[['"](\w+)['"]\])/g
  )
  const checks = code.matchAll(/['"](\w+)['"]\s+in\s+env\b/g)
  return {
    names: new Set([...reads].map(([, dotted, quoted]) => dotted ?? quoted ?? '')),
    optional: new Set([...checks].map(([, name = '']) => name)),
    origins: [...origins]
  }
}

const placeholder = /\$\{(?:[^{}`]|`(?:\\[^]|[^\\`])*`|\{[^{}]*\})*\}/.source
const template = `\`(?:\\\\[^]|${placeholder}|[^\\\\\`])*\``
const placeholders = new RegExp(placeholder, 'g')
const quoted = /'(?:\\[^]|[^'\\\n])*'|"(?:\\[^]|[^"\\\n])*"/.source
/** A slash after an operator or a bracket begins a regular expression, and after a value it divides. */
const regExp =
  /(?<=(?:^|[([{,;:=!&|?+*%<>~^-]|\breturn)\s*)\/(?![/*])(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\[\n])+\//.source
const tokens = new RegExp(`${template}|${quoted}|${regExp}|\\/\\*[^]*?\\*\\/|\\/\\/.*`, 'gm')

/** The placeholders of a template. One that is nested too deep for `placeholder` leaves the template as it is. */
const withoutText = (template: string): string =>
  template.replaceAll(placeholders, '').includes('${')
    ? template
    : (template.match(placeholders) ?? []).join(' ')

/** Texts in quotes that are more than a name may look like code. */
const namesOnly = (text: string): string => (/^.[\w/]*.$/.test(text) ? text : `''`)

/** Without comments. */
const plainCode = (
  source: string,
  templated = (template: string): string => template,
  quotedText = namesOnly
): string =>
  source.replaceAll(tokens, token => {
    if (token.startsWith('`')) return templated(token)
    if (/^['"]/.test(token)) return quotedText(token)
    return token.startsWith('//') || token.startsWith('/*') ? ' ' : token
  })
