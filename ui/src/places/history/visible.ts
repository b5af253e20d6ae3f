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
