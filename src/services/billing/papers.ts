/** Receipts and invoices as PDF, by pdfkit. */
import { buffer } from "node:stream/consumers";
import PDFDocument from "pdfkit";
import { toUsd } from "../../billing/price.ts";
import { BRAND } from "../../brand.ts";

/** A paper: what it is, about whom, and its lines. */
export interface Paper {
  readonly title: string;
  /** Names and values at its head. */
  readonly facts: readonly (readonly [name: string, value: string])[];
  /** What is charged or paid, in micro-dollars; the last one stands out. */
  readonly lines: readonly (readonly [text: string, micro: number])[];
  readonly note: string;
  /** When it was made, in unix milliseconds. */
  readonly at: number;
}

const MARGIN = 56;
const WIDTH = 483;
const ROW = 18;
/** A4, in points. */
const BOTTOM = 842 - MARGIN;
const LONGEST = 70;

/** The paper as PDF. Text that the standard fonts lack is shown as question marks. */
export function pdfOf({ title, facts, lines, note, at }: Paper): Promise<Buffer> {
  const pdf = new PDFDocument({
    size: "A4",
    margin: MARGIN,
    lang: "en",
    displayTitle: true,
    info: { Title: plain(title), Author: BRAND, CreationDate: new Date(at) },
  });
  const whole = buffer(pdf);
  pdf.font("Helvetica-Bold").fontSize(20).text(plain(title)).moveDown();
  pdf.fontSize(10);
  for (const [name, value] of facts) {
    pdf.font("Helvetica").fillColor("#5b616e").text(`${name}: `, { continued: true });
    pdf.fillColor("#16181d").text(plain(value));
  }
  pdf.moveDown();
  let y = pdf.y;
  for (const [i, [text, micro]] of lines.entries()) {
    if (y + ROW > BOTTOM) {
      pdf.addPage();
      y = MARGIN;
    }
    const isLast = i === lines.length - 1;
    if (isLast)
      pdf
        .moveTo(MARGIN, y - 4)
        .lineTo(MARGIN + WIDTH, y - 4)
        .strokeColor("#e3e5e8")
        .stroke();
    pdf.font(isLast ? "Helvetica-Bold" : "Helvetica").fillColor("#16181d");
    pdf.text(plain(text), MARGIN, y, { width: WIDTH - 110, lineBreak: false });
    pdf.text(usd(micro), MARGIN + WIDTH - 100, y, { width: 100, align: "right", lineBreak: false });
    y += ROW;
  }
  pdf
    .font("Helvetica")
    .fontSize(9)
    .fillColor("#5b616e")
    .text(note, MARGIN, y + ROW, { width: WIDTH });
  pdf.end();
  return whole;
}

/** To the cent, or as far as the ledger goes where there is more. */
function usd(micro: number): string {
  const digits = micro % 10_000 === 0 ? 2 : 6;
  return `${micro < 0 ? "-" : ""}$${toUsd(Math.abs(micro)).toFixed(digits)}`;
}

/** One line of letters that the standard fonts have (Latin-1). */
const plain = (text: string): string => {
  const line = text.replaceAll(/[^\x20-\x7e\xa0-\xff]+/g, "?");
  return line.length > LONGEST ? `${line.slice(0, LONGEST - 3)}...` : line;
};
