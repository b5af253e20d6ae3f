import { svelte } from "@sveltejs/vite-plugin-svelte";
import { svelteTesting } from "@testing-library/svelte/vite";
import { defineConfig } from "vitest/config";

export default defineConfig({
  plugins: [svelte(), svelteTesting()],
  clearScreen: false,
  server: { port: 5173, strictPort: true, host: "127.0.0.1" },
  // Everything is a file of its own: the content security policy allows neither inline scripts nor data: fonts.
  build: { target: "safari16", sourcemap: false, assetsInlineLimit: 0, modulePreload: { polyfill: false } },
  test: { environment: "jsdom", css: { include: [/tokens\.css/] }, setupFiles: ["./src/test-setup.ts"], testTimeout: 120_000 },
});
