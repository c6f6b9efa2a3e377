// Light or dark: as the system has it, until somebody asks for the other.

const button = document.getElementById("theme");
const system = matchMedia("(prefers-color-scheme: dark)");
const storage = (() => {
  try {
    return localStorage;
  } catch {
    return null; // a browser that keeps nothing: the choice holds until the page is closed
  }
})();

let theme = storage?.getItem("theme") ?? "auto";

export const isDark = () => (theme === "auto" ? system.matches : theme === "dark");

export function beginTheme() {
  button.addEventListener("click", () => {
    const wanted = isDark() ? "light" : "dark";
    theme = (wanted === "dark") === system.matches ? "auto" : wanted;
    storage?.setItem("theme", theme);
    use();
  });
  system.addEventListener("change", use);
  use();
}

function use() {
  document.documentElement.dataset.theme = theme;
  button.title = `${isDark() ? "dark" : "light"}${theme === "auto" ? ", as the system" : ""}`;
  document.dispatchEvent(new Event("themechange"));
}
