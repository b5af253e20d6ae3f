// Brought into the page by the benchmark of the window, never shipped.
const all = (css) => document.querySelectorAll(css);
const one = (css) => document.querySelector(css);
const frame = () => new Promise((done) => requestAnimationFrame(done));

/** True where an element is there and takes room. */
function seen(css) {
  const found = one(css);
  return found !== null && found.getClientRects().length > 0;
}

function click(css) {
  const found = one(css);
  if (!found) throw new Error(`${css} is not there`);
  found.click();
}

function key(target, name, shiftKey = false) {
  target.dispatchEvent(new KeyboardEvent("keydown", { key: name, shiftKey, bubbles: true, cancelable: true }));
}
const press = (name) => {
  document.activeElement?.blur();
  key(document.body, name);
};

function type(css, text) {
  const field = one(css);
  field.value = text;
  field.dispatchEvent(new Event("input", { bubbles: true }));
}

/** The number in a text, whatever sets its digits apart. */
const digits = (element) => Number((element?.textContent ?? "").split("/")[0].replace(/\D/g, "") || NaN);

async function until(good, limit = 30_000) {
  const begun = performance.now();
  while (!good()) {
    if (performance.now() - begun > limit) throw new Error(`still not: ${good}\n${document.body.textContent.slice(0, 2000)}`);
    await frame();
  }
}

/** From an act to the frame after the one in which its effect was found: by then it has been drawn. */
async function timed(act, ready) {
  await frame();
  const begun = performance.now();
  await act();
  await until(ready);
  await frame();
  return performance.now() - begun;
}

function frames(seconds, each) {
  return new Promise((done, failed) => {
    const gaps = [];
    let last = performance.now();
    const end = last + seconds * 1000;
    const draw = () => {
      const now = performance.now();
      gaps.push(now - last);
      last = now;
      try {
        each(gaps.length);
      } catch (error) {
        return failed(error);
      }
      if (now < end) requestAnimationFrame(draw);
      else done(gaps);
    };
    requestAnimationFrame(draw);
  });
}

/** The pointer goes back and forth over the charts. */
function cursor(n) {
  const over = one("[data-testid=chart-loss] .u-over");
  const box = over.getBoundingClientRect();
  const part = Math.abs(((n * 0.011) % 2) - 1);
  const place = { clientX: box.left + box.width * part, clientY: box.top + box.height / 2, movementX: 3, bubbles: true };
  over.dispatchEvent(new PointerEvent("pointermove", place));
  over.dispatchEvent(new MouseEvent("mousemove", place));
}

/** A zoom every thirtieth frame: in three times, then out. */
function zoomed(n, charts) {
  if (n % 30 === 0) key(charts, (n / 30) % 4 === 3 ? "0" : "+");
}

window.probe = { all, one, frame, seen, click, key, press, type, digits, until, timed, frames, cursor, zoomed };
