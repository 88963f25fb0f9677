"""JSON Schemas of the files that the program writes and reads, made from the types behind them."""
