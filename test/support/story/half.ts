export { default } from '../half/half.ts'
