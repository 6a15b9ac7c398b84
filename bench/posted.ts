const note = 'x'.repeat(120)

export const messageBodyOf = (taskNo: string, index: number | string): string =>
  `{"orderId":"${taskNo}","cents":${index},"note":"${note}"}`

/** The body of a POST of one task, the same in all benchmarks. */
export const bodyOf = (taskNo: string, index: number, messageCode = 'bench', keys = 0): string =>
  `{"taskNo":"${taskNo}","messageCode":"${messageCode}","sceneType":"",` +
  (keys === 0 ? '' : `"orderingKey":"key-${index % keys}",`) +
  `"messageBody":${messageBodyOf(taskNo, index)}}`

/** The tasks from `first` to before `end` of a run, as one body of the batch API. */
export const batchOf = (run: string, first: number, end: number): string =>
  `{"tasks":[${Array.from({ length: end - first }, (_, n) => bodyOf(`${run}-${first + n}`, first + n)).join()}]}`
