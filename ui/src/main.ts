import "./locale";
import "./styles/fonts.css";
import "./styles/tokens.css";
import "./styles/base.css";
import { mount } from "svelte";
import App from "./frame/App.svelte";

const target = document.getElementById("app");
if (target) {
  target.textContent = "";
  mount(App, { target });
}
