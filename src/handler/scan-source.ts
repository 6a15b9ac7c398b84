/** What the text of a handler says about its settings and its servers. */
export interface Scanned {
  /** The names that it reads from `env`. They are found in the text, before a task needs them. */
  names: Set<string>
  /** Those of the names that it asks for with `'NAME' in env`. */
  optional: Set<string>
  /** The origins that are written out, in url`…` or in a text. */
  origins: string[]
}

export function scanSource(source: string): Scanned {
  const code = plainCode(source)
  const texts = (source.match(tokens) ?? []).filter(token => /^['"]/.test(token))
  const written = [
    ...code.matchAll(/\burl`(https?:\/\/[^/?#`$\s]+)/g),
    ...texts.flatMap(text => [...text.matchAll(/^.(https?:\/\/[^/?#\s'"]+)/g)])
  ]
  const origins = new Set(written.map(([, one = '']) => one))
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

/** Without comments, and without texts in quotes that are more than a name: they may look like code. */
const plainCode = (source: string, templated = (template: string): string => template): string =>
  source.replaceAll(tokens, token => {
    if (token.startsWith('`')) return templated(token)
    if (/^['"]/.test(token)) return /^.[\w/]*.$/.test(token) ? token : `''`
    return token.startsWith('//') || token.startsWith('/*') ? ' ' : token
  })
