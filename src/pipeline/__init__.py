"""kvplan: where should the KV cache live, and where should each request go."""
