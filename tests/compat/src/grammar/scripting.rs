//! Lua scripts and functions; `·` stands for a blank and `¶` for a new line inside an argument.

use super::{Family, Weighted};

/// The family.
pub const FAMILY: Family = Family::data("scripting", FORMS);

const FORMS: &[Weighted] = &[
    (4, "EVAL return·redis.call('get',KEYS[1]) 1 <key>"),
    (4, "EVAL return·redis.call('set',KEYS[1],ARGV[1]) 1 <key> <value>"),
    (3, "EVAL return·redis.pcall('incr',KEYS[1]) 1 <key>"),
    (3, "EVAL return·redis.call('incr',KEYS[1]) 1 <key>"),
    (3, "EVAL return·ARGV 0 { <value> }"),
    (3, "EVAL return·{KEYS,ARGV} ( 1 <key> | 2 <key> <key> | 0 ) { <value> }"),
    (2, "EVAL return·{1,2.7,'x',true,false,nil,4} 0"),
    (2, "EVAL return·{err='MY·error'} 0"),
    (2, "EVAL return·redis.error_reply('<word>') 0"),
    (2, "EVAL return·redis.status_reply('<word>') 0"),
    (2, "EVAL return·tonumber(ARGV[1])·or·'none' 0 <value>"),
    (2, "EVAL return·redis.sha1hex(ARGV[1]) 0 <value>"),
    (2, "EVAL return·cjson.encode({1,2,'three',{a=1}}) 0"),
    (
        2,
        "EVAL return·cjson.encode({ARGV[1],tonumber(ARGV[1])·or·0.1,{x={1.5,1e20,-0.25,1/3,{}}},cjson.null}) 0 <value>",
    ),
    (2, "EVAL return·cjson.decode('[1,2,{\"a\":[true,null]}]')[3].a[1] 0"),
    (1, "EVAL return·cmsgpack.unpack(cmsgpack.pack({1,2,ARGV[1]})) 0 <value>"),
    (1, "EVAL return·bit.band(255,tonumber('15')) 0"),
    (1, "EVAL return·struct.pack('>I2h',1,2) 0"),
    (1, "EVAL local·t={}·for·i=1,10·do·t[i]=i*i·end·return·t 0"),
    (1, "EVAL error('boom') 0"),
    (1, "EVAL return·nosuchvariable 0"),
    (1, "EVAL x=1 0"),
    (1, "EVAL return·redis.call('nosuch') 0"),
    (1, "EVAL return·redis.call('get') 0"),
    (1, "EVAL syntax·error·here 0"),
    (1, "EVAL return·1 ( -1 | abc | 5 )"),
    (2, "EVAL redis.setresp(3)·return·redis.call('hgetall',KEYS[1]) 1 <key>"),
    (2, "EVAL_RO return·redis.call('set',KEYS[1],'x') 1 <key>"),
    (2, "EVAL_RO return·redis.call('get',KEYS[1]) 1 <key>"),
    (2, "SCRIPT LOAD return·1"),
    (2, "EVALSHA e0e1f9fabfc9d4800c877a703b823ac0578ff8db 0"),
    (1, "EVALSHA ffffffffffffffffffffffffffffffffffffffff 0"),
    (1, "SCRIPT EXISTS e0e1f9fabfc9d4800c877a703b823ac0578ff8db ffffffffffffffffffffffffffffffffffffffff"),
    (1, "SCRIPT FLUSH [ ( ASYNC | SYNC | x ) ]"),
    (1, "SCRIPT ( KILL | NONSENSE )"),
    (
        1,
        "FUNCTION LOAD [ REPLACE ] #!lua·name=lib¶redis.register_function('f1',function(keys,args)·return·redis.call('get',keys[1])·end)",
    ),
    (1, "FUNCTION ( DELETE lib | FLUSH | NONSENSE | KILL )"),
    (2, "FCALL f1 1 <key>"),
    (1, "FCALL_RO f1 1 <key>"),
    (3, "SET <key> <value>"),
    (2, "HSET <key> <field> <value>"),
];
