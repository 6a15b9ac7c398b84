// The text of a body: shown with line breaks, never read as numbers and written again.

/** With line breaks and indents; every number, text and member as it was written. What is no JSON stays as it is. */
export function prettyJson(body: string): string {
  try {
    JSON.parse(body)
  } catch {
    return body
  }
  let text = ''
  let depth = 0
  const line = (): string => `\n${'  '.repeat(depth)}`
  for (const [token] of body.matchAll(/"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g)) {
    const isEmpty = text.endsWith('{') || text.endsWith('[')
    if (token === '}' || token === ']') {
      depth--
      text += isEmpty ? token : line() + token
      continue
    }
    if (isEmpty) text += line()
    if (token === '{' || token === '[') depth++
    text += token === ',' ? `,${line()}` : token === ':' ? ': ' : token
  }
  return text
}
