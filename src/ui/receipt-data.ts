// The data of receipts as the text that was posted.

const inReceipt = JSON.stringify(['', 'deliveries', '', 'receipts', ''])

/**
 * The answer of a task, in which the `data` of each receipt is a text that holds its JSON. JSON.parse would change numbers such as
 * 1234567890123456789 or 1.10.
 */
export function withDataAsText(answer: string): string {
  /** The name of each open object or list in its parent. */
  const path: string[] = []
  let name = ''
  let dataFrom: number | undefined
  let copiedTo = 0
  let text = ''
  for (const { 0: token, index } of answer.matchAll(/"(?:[^"\\]|\\.)*"(?:\s*:)?|[{}[\],]/g)) {
    if (dataFrom !== undefined && path.length === 5 && (token === ',' || token === '}')) {
      text += answer.slice(copiedTo, dataFrom) + JSON.stringify(answer.slice(dataFrom, index))
      copiedTo = index
      dataFrom = undefined
    }
    if (token === '{' || token === '[') path.push(name)
    else if (token === '}' || token === ']') path.pop()
    name = ''
    if (token.endsWith(':')) {
      name = JSON.parse(token.slice(0, -1)) as string
      if (name === 'data' && JSON.stringify(path) === inReceipt) dataFrom = index + token.length
    }
  }
  return text + answer.slice(copiedTo)
}
