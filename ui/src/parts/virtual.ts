// Which rows of a long list are in the DOM: those on show and a few more, whatever the list's length.

export interface Visible {
  first: number;
  /** One past the last. */
  end: number;
}

export function visible(scrollTop: number, height: number, rowHeight: number, total: number, overscan = 8): Visible {
  const first = Math.max(0, Math.floor(scrollTop / rowHeight) - overscan);
  const end = Math.min(total, Math.ceil((scrollTop + height) / rowHeight) + overscan);
  return { first: Math.min(first, end), end };
}

/** Where to scroll so that this row is wholly on show; null where it already is. */
export function scrollFor(index: number, scrollTop: number, height: number, rowHeight: number): number | null {
  const top = index * rowHeight;
  if (top < scrollTop) return top;
  if (top + rowHeight > scrollTop + height) return top + rowHeight - height;
  return null;
}

/** The tallest that a scrolled box is made: browsers draw nothing beyond some tens of millions of pixels. */
const TALLEST = 8_000_000;

/** Pixels of the box that is scrolled: those of all rows, or fewer where browsers would not draw them. */
export function trackHeight(total: number, rowHeight: number): number {
  return Math.min(total * rowHeight, TALLEST);
}

/** Pixels of all rows above what is on show, where the box is scrolled this far. */
export function listTop(scrollTop: number, height: number, rowHeight: number, total: number): number {
  return scrollTop * stretch(height, rowHeight, total);
}

/** How far the box is scrolled where this many pixels of rows are above. */
export function scrollOf(top: number, height: number, rowHeight: number, total: number): number {
  return top / stretch(height, rowHeight, total);
}

/** Pixels of rows that a pixel of scrolling stands for; 1 unless there are very many. */
function stretch(height: number, rowHeight: number, total: number): number {
  const track = trackHeight(total, rowHeight);
  return track < total * rowHeight ? (total * rowHeight - height) / Math.max(track - height, 1) : 1;
}
