// What cannot be read on a page as it is shown: { width, dark, found: [lines] }.
(() => {
  const found = new Set();
  const printed = matchMedia("print").matches;
  const name = (element) => {
    const text = element.textContent.trim().replace(/\s+/g, " ").slice(0, 40);
    const of = element.getAttribute("class");
    return `${element.localName}${of ? "." + of : ""} '${text}'`;
  };
  const visible = (element) => element.checkVisibility();
  const all = [...document.querySelectorAll("body *")].filter((it) => it.localName !== "script");

  // Nothing is wider than the page, and nothing than its box.
  const wide = document.scrollingElement.scrollWidth;
  if (wide > innerWidth) found.add(`the page is ${wide} px wide`);
  for (const element of all.filter(visible)) {
    const box = element.getBoundingClientRect();
    const inPicture = element.closest("svg") && element.localName !== "svg";
    if (!inPicture && box.width > 0 && (box.right > innerWidth + 0.5 || box.left < -0.5)) {
      found.add(`sticks out of the page: ${name(element)}`);
    }
    if (!inPicture && element.clientWidth > 0 && element.scrollWidth > element.clientWidth + 1) {
      const much = element.scrollWidth - element.clientWidth;
      found.add(`sticks out of its box by ${much} px: ${name(element)}`);
    }
  }

  // Text is large enough, and stands out from what is behind it.
  const rgb = (colour) => (colour.match(/[\d.]+/g) || []).map(Number);
  const luminance = (colour) => {
    const part = (value) => {
      value /= 255;
      return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
    };
    const [red, green, blue] = rgb(colour).map(part);
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const ground = (element) => {
    for (let it = element; it; it = it.parentElement) {
      const colour = getComputedStyle(it).backgroundColor;
      if (rgb(colour)[3] !== 0) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  const least = printed ? 10 : 10.5;
  for (const element of all.filter(visible)) {
    const own = [...element.childNodes].some((it) => it.nodeType === Node.TEXT_NODE && it.data.trim());
    if (!own) continue;
    const style = getComputedStyle(element);
    const picture = element.ownerSVGElement;
    const size = parseFloat(style.fontSize) * (picture ? picture.getScreenCTM().a : 1);
    if (size < least) found.add(`text of ${size.toFixed(1)} px: ${name(element)}`);
    const [one, other] = [luminance(picture ? style.fill : style.color), luminance(ground(element))];
    const contrast = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    if (contrast < 4.5) found.add(`contrast ${contrast.toFixed(1)}: ${name(element)}`);
  }

  // Words in pictures keep apart, and inside.
  for (const picture of document.querySelectorAll("svg.plot")) {
    const frame = picture.getBoundingClientRect();
    const texts = [...picture.querySelectorAll("text")].map((element) => {
      return { said: element.textContent.trim(), box: element.getBoundingClientRect() };
    });
    texts.forEach(({ said, box }, number) => {
      if (box.left < frame.left - 0.5 || box.right > frame.right + 0.5 || box.top < frame.top - 0.5
        || box.bottom > frame.bottom + 0.5) {
        found.add(`outside of its picture: '${said}'`);
      }
      for (const other of texts.slice(number + 1)) {
        const across = Math.min(box.right, other.box.right) - Math.max(box.left, other.box.left);
        const down = Math.min(box.bottom, other.box.bottom) - Math.max(box.top, other.box.top);
        // Boxes are as high as a line, of which digits fill two thirds.
        if (across > 0 && down > box.height / 4) found.add(`over each other: '${said}' and '${other.said}'`);
      }
    });
  }

  // Paper cannot be unfolded.
  if (printed) {
    for (const element of document.querySelectorAll("details > *")) {
      if (!visible(element)) found.add(`folded away: ${name(element)}`);
    }
  }
  return { width: innerWidth, dark: matchMedia("(prefers-color-scheme: dark)").matches, found: [...found] };
})()
