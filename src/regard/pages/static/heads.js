// Which head is shown, and the small pictures to choose it by.

let filled = -1;
function choose(layer, head, focused) {
  if (!data.layers[layer] || data.layers[layer].refused) return;
  const size = (n) => data.layers[n].rows.length * 65537 + data.layers[n].columns.length;
  if (size(layer) !== size(state.layer)) state.at = null;
  state.layer = layer;
  state.head = clamp(head, 0, data.layers[layer].heads.length - 1);
  draw();
  const chosen = buttons[layer] && buttons[layer][state.head];
  if (chosen && focused) chosen.focus();
  if (chosen && picker.contains(chosen)) chosen.scrollIntoView({ block: "nearest", inline: "nearest" });
}

// In the picker: left and right between heads, up and down between layers (or rows of heads).
if (picker) picker.addEventListener("keydown", (event) => {
  const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
  if (!step) return;
  event.preventDefault();
  if (step[0] && !layered) return;
  const place = shown.indexOf(state.layer) + step[0];
  choose(shown[clamp(place, 0, shown.length - 1)], state.head + step[1], true);
});

const THUMBNAIL = 104;
const most = data.layers.reduce((count, layer) => Math.max(count, layer.heads.length), 1);
function thumbnails() {
  // all heads of a layer side by side where they can still be told apart
  const room = (window.innerWidth >= 1000 ? 0.44 * window.innerWidth : document.body.clientWidth) - 60;
  const size = layered ? `${clamp(Math.floor(room / most) - 5, 20, 36)}px` : "";
  buttons.forEach((row, n) => row.forEach((button, head) => {
    const layer = layers()[n], longest = Math.max(layer.down.count, layer.across.count, 1);
    const small = image(layer, head, Math.ceil(longest / THUMBNAIL)), canvas = button.firstChild;
    canvas.style.width = canvas.style.height = size;
    canvas.width = canvas.height = THUMBNAIL;
    const context = canvas.getContext("2d");
    context.imageSmoothingEnabled = false;
    const wide = THUMBNAIL * Math.max(layer.across.count / longest, 0.25), tall = THUMBNAIL * Math.max(layer.down.count / longest, 0.25);
    context.drawImage(small, (THUMBNAIL - wide) / 2, (THUMBNAIL - tall) / 2, wide, tall);
  }));
}
