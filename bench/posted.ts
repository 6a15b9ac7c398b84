const note = 'x'.repeat(120)

/** What the producers of all benchmarks post. */
export const bodyOf = (taskNo: string, index: number): string =>
  `{"taskNo":"${taskNo}","messageCode":"bench","sceneType":"","messageBody":` +
  `{"orderId":"${taskNo}","cents":${index},"note":"${note}"}}`
