from torchprof import main

main()
