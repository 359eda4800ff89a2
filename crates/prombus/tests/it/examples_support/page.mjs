// Opens a page in Chromium for a test. Each line of stdin is an expression: it is evaluated in the page until it is
// true, and its value is written to stdout as a line of JSON.
import { createInterface } from "node:readline";
import { chromium } from "playwright-core";

const [executablePath, url, patience] = process.argv.slice(1);
const args = [
  "--no-sandbox", // Chromium refuses to run as root with one.
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];
const browser = await chromium.launch({ executablePath, args });
const page = await browser.newPage();
page.on("console", (message) => console.error(message.text()));
page.on("pageerror", (error) => console.error(error.message));
await page.goto(url);
for await (const expression of createInterface({ input: process.stdin })) {
  const value = await page.waitForFunction(expression, undefined, { timeout: Number(patience) });
  console.log(JSON.stringify(await value.jsonValue()));
}
await browser.close();
