;; init.el
(with-eval-after-load 'eglot
  (add-to-list 'eglot-server-programs
               '((python-mode python-ts-mode) . ("lowtide" "lint" "--lsp"))))
