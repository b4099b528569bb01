dbfilename ""
