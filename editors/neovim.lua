-- ~/.config/nvim/lsp/lowtide.lua; then vim.lsp.enable("lowtide")
return {
  cmd = { "lowtide", "lint", "--lsp" },
  filetypes = { "python" },
  root_markers = { "pyproject.toml", ".git" },
}
